"""The public names of crossgate, and the module that each one comes from."""

from crossgate._core import Policy as Policy
from crossgate._core import Profile as Profile
from crossgate._core import Scored as Scored
from crossgate._core import __version__ as __version__
from crossgate._decision.context import Context as Context
from crossgate._decision.explain import Explanation as Explanation
from crossgate._decision.rerank_candidates import RerankOptions as RerankOptions
from crossgate._decision.rerank_candidates import arerank as arerank
from crossgate._decision.rerank_candidates import rerank as rerank
from crossgate._decision.rerank_candidates import rerank_many as rerank_many
from crossgate._decision.router import Router as Router
from crossgate._decision.tool_router import ToolRouter as ToolRouter
from crossgate._reranking.contract import PairScore as PairScore
from crossgate._reranking.contract import Reranker as Reranker
from crossgate._reranking.cross_encoder import CrossEncoder as CrossEncoder
from crossgate._retrieval.document_index import Index as Index
from crossgate._retrieval.document_index import SearchResult as SearchResult
from crossgate._retrieval.embedding import Embedder as Embedder
from crossgate._retrieval.embedding import OnnxEmbedder as OnnxEmbedder
from crossgate._retrieval.embedding import PrecomputedVectors as PrecomputedVectors
from crossgate._runtime.threads import set_threads as set_threads
from crossgate._support.errors import CalibrationError as CalibrationError
from crossgate._support.errors import CrossgateError as CrossgateError
from crossgate._support.errors import IndexFileError as IndexFileError
from crossgate._support.errors import InputError as InputError
from crossgate._support.errors import ModelError as ModelError
from crossgate._support.errors import PluginError as PluginError
from crossgate._support.errors import ProfileError as ProfileError
from crossgate._support.errors import RerankerError as RerankerError
from crossgate._support.errors import SourceError as SourceError
from crossgate._values.options import DecisionOptions as DecisionOptions
from crossgate._values.profile_files import read_policy as read_policy
from crossgate._values.profile_files import read_profile as read_profile
from crossgate._values.profile_files import write_profile as write_profile
from crossgate._values.results import Candidate as Candidate
from crossgate._values.results import Degradation as Degradation
from crossgate._values.results import Document as Document
from crossgate._values.results import Hit as Hit
from crossgate._values.results import Passage as Passage
from crossgate._values.results import ResultWarning as ResultWarning
from crossgate._values.results import RouteResult as RouteResult
from crossgate._values.results import Verdict as Verdict

__all__: list[str]
