"""altmin in other training loops: Lightning, skorch and Hugging Face. Each is imported where it is used."""
