"""Decides which skill, tool or text chunk fits a query, offline, on a laptop CPU.

from crossgate import Document, Index, Router

index = Index.build([Document(id="pdf", text="Merge, split and fill PDF files")])
result = Router(index).route("join these two PDFs")
result.ids, result.reason
"""

from crossgate._support.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
