package main

import (
	"embed"
	"io/fs"
	"net/http"
)

// The page is plain HTML; page/idem.js is a copy of client/js/idem.js.
//
//go:embed page
var files embed.FS

// page serves the page, which runs nothing but its own scripts.
func page() http.Handler {
	root, err := fs.Sub(files, "page")
	if err != nil {
		panic(err)
	}
	serve := http.FileServerFS(root)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy",
			"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		serve.ServeHTTP(w, r)
	})
}
