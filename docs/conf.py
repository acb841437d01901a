"""Sphinx: `make docs` builds build/docs. The API pages import the installed pchan."""

from importlib.metadata import version as _version

project = "pchan"
author = "pchan developers"
release = version = _version("pchan")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []
nitpicky = False
highlight_language = "none"  # blocks without a language are drawings and output

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings tell them
autodoc_inherit_docstrings = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"pchan {release}"
html_copy_source = False
