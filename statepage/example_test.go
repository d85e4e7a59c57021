package statepage_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/statepage"
)

// The page shows the scopes of a Transport, here as JSON.
func Example() {
	api := faulttest.New(nil, faulttest.Status(http.StatusNotFound))
	defer api.Close()
	bank := &resilienthttp.Transport{Scope: func(*http.Request) string { return "bank" }}
	resp, err := (&http.Client{Transport: bank}).Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()

	page := &statepage.Handler{Transports: map[string]*resilienthttp.Transport{"bank": bank}}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/resilience?format=json", http.NoBody))
	var state struct {
		Version int `json:"version"`
	}
	_ = json.Unmarshal(w.Body.Bytes(), &state)
	fmt.Println(w.Code, w.Header().Get("Content-Type"), state.Version)
	// Output: 200 application/json 1
}
