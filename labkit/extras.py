"""Which extra of the package brings a module, for whoever runs into one that is not installed."""

EXTRAS: dict[str, tuple[str, ...]] = {
    "lab": (
        *("anywidget", "cloudpickle", "hypothesis", "ipywidgets", "jupyterlab", "matplotlib"),
        *("nbclient", "nbconvert", "nbformat", "numpy", "yaml"),
    ),
    "torch": ("safetensors", "torch"),
    "fast": ("uvloop",),
    "http": ("httptools", "msgspec", "prometheus_client"),
    "classroom": ("jupytext", "papermill"),
    "peers": ("ciw",),
    "dev": ("openai", "playwright", "uvicorn"),
}
"""Extra -> modules, as they are imported; those of Jupyter come with JupyterLab."""


def missing(error: BaseException) -> str | None:
    """What to install when this error is the lack of an optional package; None for any other."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return f"{module} is not installed; pip install 'labkit[{extra}]'"
    return None
