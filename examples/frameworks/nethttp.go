package frameworks

import "net/http"

// netHTTP wraps the handler of each route.
func (s *service) netHTTP() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /charges", s.once("charge", http.HandlerFunc(s.serveCharge)))
	return authenticate(mux)
}
