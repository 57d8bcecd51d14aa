package canon
import ("testing"; jsonv2 "github.com/go-json-experiment/json"; "github.com/go-json-experiment/json/jsontext")
func BenchmarkParts(b *testing.B) {
	o := &order{
		ID: "ord_01HZX3J5Q8Y7", Customer: "cus_9f8e7d6c5b4a", Amount: 129900, Currency: "EUR",
		Note: "Please leave the parcel at the door, ring twice and mind the dog in the yard.",
		Lines: []line{{"SKU-1001", 2, 19.99}, {"SKU-2002", 1, 899.5}, {"SKU-3003", 10, 1}},
	}
	text, _ := jsonv2.Marshal(o, options)
	b.Run("marshal", func(b *testing.B) { for b.Loop() { jsonv2.Marshal(o, options) } })
	b.Run("silent", func(b *testing.B) { for b.Loop() { silent(o) } })
	b.Run("normalize", func(b *testing.B) { for b.Loop() { normalize(text) } })
	opt := jsontext.ReorderRawObjects(true)
	buf := make([]byte, 0, 1024)
	b.Run("reorder", func(b *testing.B) { for b.Loop() { buf, _ = jsontext.AppendFormat(buf[:0], text, opt) } })
	b.Run("format", func(b *testing.B) { for b.Loop() { buf, _ = jsontext.AppendFormat(buf[:0], text) } })
}
