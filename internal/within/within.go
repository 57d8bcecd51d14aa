// Package within looks for types within types.
package within

import (
	"reflect"
	"sync"
)

// Finder tells which types contain one that is Wanted. It remembers its answers.
type Finder struct {
	Wanted func(reflect.Type) bool

	known sync.Map // reflect.Type → bool
}

// In reports whether t is wanted or holds a type that is, as the elements, keys
// and fields of its values.
func (f *Finder) In(t reflect.Type) bool {
	if found, ok := f.known.Load(t); ok {
		return found.(bool)
	}
	found := f.find(t, map[reflect.Type]bool{})
	f.known.Store(t, found)
	return found
}

func (f *Finder) find(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	if f.Wanted(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return f.find(t.Elem(), seen)
	case reflect.Map:
		return f.find(t.Key(), seen) || f.find(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f.find(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
