package frameworks

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// chi has the middleware of net/http. With adds one to a single route, inside of those that Use
// adds.
func (s *service) chi() http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer, authenticate)
	charges := func(next http.Handler) http.Handler { return s.once("charge", next) }
	r.With(charges).Post("/charges", s.serveCharge)
	return r
}
