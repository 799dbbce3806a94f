"""The LIS by files: an order is one JSON file in a folder, results are read from a drop folder.

Orders go by the prepared-then-renamed protocol (see `orders`), so that none is written twice even when the LIS has taken the
file already. Results are committed before their file is put away (law 1), and a bad file does not stop the good ones (law 9).
"""

from __future__ import annotations

from lab_agent.lis.folder.adapter import FolderAdapter
from lab_agent.lis.folder.settings import FolderSettings

__all__ = ["FolderAdapter", "FolderSettings"]
