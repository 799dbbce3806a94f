"""The LIS by files: an order is a JSON file in one folder, results are read from another.

Orders are first written under a hidden name and then renamed (see `order_files`), so that none is written twice even if the LIS
has picked up the file already. Results are committed before their file is moved away (law 1); a bad file does not stop the
others (law 9).
"""

from __future__ import annotations

from lab_agent.lis.folder.adapter import FolderAdapter
from lab_agent.lis.folder.settings import FolderSettings

__all__ = ["FolderAdapter", "FolderSettings"]
