"""Convert written English to spoken English: reader.py applies the rules that the other files list."""
