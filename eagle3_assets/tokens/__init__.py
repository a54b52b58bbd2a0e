"""Token ids and their grammar: target profiles, the laws of token fidelity, and what a person is shown of them.

Pure: nothing here knows Dagster, reads files, or imports a model library when it is loaded.
"""
