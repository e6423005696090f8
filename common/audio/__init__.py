"""Audio: sound files, the STFT and log-mels, Griffin-Lim."""
