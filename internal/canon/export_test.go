package canon

// What the tests of the hash, which cannot be in this package, share with those
// of the form.
var (
	RandomValue = randomValue
	Change      = change
	Write       = write
)

// Integer returns a number as RandomValue has them.
func Integer(i int64) any { return num{i, 0} }
