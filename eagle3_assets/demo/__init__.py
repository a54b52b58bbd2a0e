"""The embedded demo target: how it is made, its weights, its prompts and its configuration."""
