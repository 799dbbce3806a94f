"""The catalogue in the store: imported versions, notices of staff, barcodes given out; one truth for every process."""
