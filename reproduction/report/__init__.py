"""The page of `reproduction report`: claims, interactive figures, settings and environments in one HTML file."""
