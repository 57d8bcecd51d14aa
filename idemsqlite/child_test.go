package idemsqlite_test

const roleVariable = "X"

func runChild(string) int { return 0 }
