"""Parts that all packages share: error messages, checks of states, how settings are written."""
