"""Plan: the settings of training, proposed from the data and the machine."""
