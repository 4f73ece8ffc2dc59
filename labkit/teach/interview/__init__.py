"""The interview workbook: what to say out loud, kept as data and checked."""
