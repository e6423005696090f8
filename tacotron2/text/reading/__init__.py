"""English as it is written to English as it is read aloud: reader.py applies the rules that the other files list."""
