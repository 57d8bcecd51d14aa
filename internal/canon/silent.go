package canon

import (
	"encoding"
	"reflect"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
)

// silent returns the struct type at the end of v's pointers and interfaces if it
// has fields, none of which JSON can see, and no marshal method: all its values
// encode as {}, so all requests would look the same. The result of errors.New is
// such a value. For any other v, an honest struct{} included, it returns nil.
//
// Only the payload itself is checked. A type like that in a field is not rare
// (a mutex) and does not make all payloads one.
func silent(v any) reflect.Type {
	addressable := false
	for rv := reflect.ValueOf(v); rv.IsValid(); rv = rv.Elem() {
		t := rv.Type()
		switch t.Kind() {
		case reflect.Pointer:
			addressable = true
		case reflect.Interface:
			addressable = false
		case reflect.Struct:
			if t.NumField() == 0 || hasVisibleField(t, nil) || hasMarshalMethod(t, addressable) {
				return nil
			}
			return t
		default:
			return nil
		}
	}
	return nil
}

// hasVisibleField reports whether JSON can see a field of t, which is embedded
// in outer.
func hasVisibleField(t reflect.Type, outer []reflect.Type) bool {
	if slices.Contains(outer, t) {
		return false // embeds itself
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		embedded := f.Anonymous && ft.Kind() == reflect.Struct
		switch {
		case tag == "-":
		case embedded && name == "": // its fields count as t's
			if hasVisibleField(ft, append(outer, t)) {
				return true
			}
		case embedded || f.IsExported():
			return true
		}
	}
	return false
}

// hasMarshalMethod reports whether the encoder calls a method of t. One with a
// pointer receiver it calls only where it has a pointer, as encoding/json does.
func hasMarshalMethod(t reflect.Type, addressable bool) bool {
	if addressable {
		t = reflect.PointerTo(t)
	}
	return slices.ContainsFunc(marshalMethods, t.Implements)
}

var marshalMethods = []reflect.Type{
	reflect.TypeFor[jsonv2.Marshaler](),
	reflect.TypeFor[jsonv2.MarshalerTo](),
	reflect.TypeFor[encoding.TextMarshaler](),
	reflect.TypeFor[encoding.TextAppender](),
}
