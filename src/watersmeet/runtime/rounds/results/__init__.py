"""A folder of results: its log (`log`), which checkpoint may write to it (`folder`), the files of rows (`parts`, `columns`), and how rows get there (`leaving`)."""
