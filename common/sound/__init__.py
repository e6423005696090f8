"""Sound: audio in and out, the STFT and log-mels, and the layers and recurrences that models share."""
