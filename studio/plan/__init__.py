"""Plan: training settings proposed from the data and the machine."""
