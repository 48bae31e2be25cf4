"""What the other packages share: error messages, checks of states, how settings are written."""
