package txtests_test

const childVariable = "X"

func child() {}
