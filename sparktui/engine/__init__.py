"""The SGLang containers: what is started, how far a boot is, why it failed."""
