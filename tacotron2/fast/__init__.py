"""Fast ways of Tacotron 2: they import the plain model, which does not know of them."""
