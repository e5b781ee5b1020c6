"""Stage 2: the reranker protocol, the included rerankers, budget and circuit breaker.

from crossgate import Router
from crossgate.rerankers import SemanticBM25, VoyageReranker

router = Router(index, reranker=[VoyageReranker.from_environment(), "default", SemanticBM25()])
result = router.route("join these two PDFs", budget_ms=400)
result.selected[0].provider, result.degraded
"""

from crossgate._support.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
