package conditional_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/conditional"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Another writer changes the balance between the read and the write. The first write gets a
// 412, and Update starts again with the new balance.
func ExampleUpdate() {
	read := func(tag, body string) faulttest.Reply {
		return faulttest.Reply{Header: http.Header{"Etag": {tag}}, Body: body}
	}
	api := faulttest.New(nil, faulttest.Sequence(
		read(`"1"`, `{"balance":100}`), faulttest.Status(http.StatusPreconditionFailed),
		read(`"2"`, `{"balance":150}`), faulttest.OK("thank you"),
	))
	defer api.Close()

	resp, err := conditional.Update(context.Background(), resilienthttp.NewClient(), api.URL+"/accounts/1",
		func(current []byte, _ http.Header) ([]byte, error) {
			var account struct {
				Balance int `json:"balance"`
			}
			if err := json.Unmarshal(current, &account); err != nil {
				return nil, err
			}
			account.Balance += 5
			return json.Marshal(account)
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
	for _, r := range api.Requests() {
		fmt.Println(strings.TrimSpace(r.Method + " " + r.Header.Get("If-Match") + " " + string(r.Body)))
	}
	// Output:
	// 200 thank you
	// GET
	// PUT "1" {"balance":105}
	// GET
	// PUT "2" {"balance":155}
}
