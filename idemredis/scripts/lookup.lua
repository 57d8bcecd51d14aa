-- Returns now and the record, or nothing if there is none.
return {now, record}
