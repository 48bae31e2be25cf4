"""The page of `altmin report`: claims, interactive figures, settings and environments in one HTML file."""
