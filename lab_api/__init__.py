"""The laboratory's public face: nomenclature, eta, questionnaire and pre-analytics."""
