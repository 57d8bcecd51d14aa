package within

import (
	"reflect"
	"testing"
)

type list struct {
	Value int
	Next  *list
}

func TestFinder(t *testing.T) {
	t.Parallel()
	f := Finder{Wanted: func(t reflect.Type) bool { return t.Kind() == reflect.Interface }}
	for _, tt := range []struct {
		value any
		want  bool
	}{
		{1, false}, {list{}, false}, {[]map[string]*[2]int{}, false}, {struct{}{}, false},
		{[]any{}, true}, {map[any]int{}, true}, {map[int][]error{}, true}, {struct{ a *struct{ b any } }{}, true},
	} {
		for range 2 { // found, then remembered
			if got := f.In(reflect.TypeOf(tt.value)); got != tt.want {
				t.Errorf("%T: found %v, want %v", tt.value, got, tt.want)
			}
		}
	}
}
