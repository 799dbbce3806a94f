"""The catalogue as a spreadsheet: a workbook or a folder of CSV files."""
