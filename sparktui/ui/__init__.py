"""The full-screen app: the only code that imports Textual."""
