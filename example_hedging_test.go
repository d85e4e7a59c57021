package resilienthttp_test

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The first request is slow. After the Delay a hedge is sent, and its response wins.
func ExampleHedge() {
	api := faulttest.New(nil, faulttest.Sequence(
		faulttest.Reply{Delay: time.Minute, Body: "slow"},
		faulttest.OK("quick"),
	))
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{
		Hedge: &resilienthttp.Hedge{Delay: 50 * time.Millisecond},
	}}
	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	for _, attempt := range resilienthttp.Attempts(resp) {
		fmt.Println("attempt", attempt.Number, "hedge:", attempt.Hedge, "response:", attempt.Response != nil)
	}
	// Output:
	// quick
	// attempt 1 hedge: false response: false
	// attempt 1 hedge: true response: true
}
