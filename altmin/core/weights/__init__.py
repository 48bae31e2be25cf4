"""Weight rules: how every block's weights follow its code."""
