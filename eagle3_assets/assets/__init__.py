"""One module per asset: what is made. Thin: read, call a pure function, attach metadata.

Each module has a function ``build(project)`` which returns the asset for one config, so that tests and several configs
can have their own.
"""
