"""Stands in for SGLang's compiled kernels, of which there is no build without CUDA.

The layers look their kernels up here when they are imported, and on a CPU fall back to plain torch when they run.
"""

from collections.abc import Callable


def __getattr__(name: str) -> Callable[..., None]:
    """A kernel that says what it is if anything calls it."""
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_: object, **__: object) -> None:
        raise NotImplementedError(f"the SGLang kernel {name} has no CPU build")

    return kernel
