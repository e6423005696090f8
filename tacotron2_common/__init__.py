"""The modules that the published recipe has in a package of this name, over those of common/."""
