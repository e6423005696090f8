"""An HTTP server for voices: `python -m serving`. It calls Synthesizer and contains no model."""
