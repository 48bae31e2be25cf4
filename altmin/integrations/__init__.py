"""altmin inside other people's training loops: Lightning and skorch. Each is imported where it is used."""
