"""Sphinx configuration of the documentation; `build.py` makes its source files."""

import tracewarehouse

project, author = "tracewarehouse", "the tracewarehouse developers"
release = version = tracewarehouse.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
myst_heading_anchors = 3
html_theme, html_title = "furo", "tracewarehouse"
html_copy_source = False
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"  # results and errors are returned, not made
autodoc_typehints = "description"
# Placeholders such as `$min_share` in SQL, and contracts.
suppress_warnings = ["misc.highlighting_failure"]
napoleon_use_ivar = True
