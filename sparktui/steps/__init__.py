"""The operator's verbs. Each asks the nodes what is done, says what it will do, and does it again safely."""
