"""Programs that scripts/*.sh and the Makefile run; nothing of the recipe imports it."""
