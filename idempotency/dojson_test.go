package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// doAs is DoJSON for theID.
func doAs[T any](t *testing.T, store idempotency.Store, work func(context.Context) (T, error)) (T, error) {
	t.Helper()
	return idempotency.DoJSON(t.Context(), store, theID.Scope, theID.Operation, theID.Key, "", work)
}

// gives returns work with a result.
func gives[T any](value T, err error) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return value, err }
}

// never is work that must not be executed.
func never[T any](t *testing.T) func(context.Context) (T, error) {
	t.Helper()
	return func(context.Context) (value T, _ error) {
		t.Error("done again")
		return value, nil
	}
}

type receipt struct {
	ID     int64             `json:"id"`
	Note   string            `json:"note,omitempty"`
	Scores []float64         `json:"scores"`
	Labels map[string]int8   `json:"labels"`
	ByID   map[uint16][]byte `json:"by_id"`
	Next   *receipt          `json:"next"`
	Took   time.Duration
	Ratio  float32
	Pair   [2]bool
}

// asAgain returns a test that compares the value of a duplicate with the first value.
func asAgain[T any](want, again T) func(t *testing.T) {
	return func(t *testing.T) {
		store := new(idempotency.Memory)
		first, err := doAs(t, store, gives(want, nil))
		require.NoError(t, err)
		require.Equal(t, want, first)
		second, err := doAs(t, store, never[T](t))
		require.NoError(t, err)
		require.Equal(t, again, second)
	}
}

type hidden struct{ Seen, private int }

// onlyInside marshals itself and has no exported fields.
type onlyInside struct{ n int }

func (o *onlyInside) MarshalJSON() ([]byte, error)    { return []byte{'0' + byte(o.n)}, nil }
func (o *onlyInside) UnmarshalJSON(text []byte) error { o.n = int(text[0] - '0'); return nil }

func TestDoJSON_values(t *testing.T) {
	text, when := "text", time.Date(2026, 11, 20, 1, 2, 3, 4, time.UTC)
	t.Run("nothing", asAgain(struct{}{}, struct{}{}))
	t.Run("a nil pointer", asAgain[*receipt](nil, nil))
	t.Run("a nil slice", asAgain[[]int](nil, nil))
	t.Run("a slice of nothing", asAgain([]int{}, []int{}))
	t.Run("a pointer", asAgain(&text, &text))
	t.Run("bytes", asAgain([]byte("\xff\x00"), []byte("\xff\x00")))
	t.Run("the largest number", asAgain(uint64(math.MaxUint64), uint64(math.MaxUint64)))
	t.Run("a time", asAgain(when, when))
	t.Run("a map by what is text", asAgain(map[netip.Addr]int{netip.MustParseAddr("::1"): 1}, map[netip.Addr]int{netip.MustParseAddr("::1"): 1}))
	t.Run("a big number", asAgain(*big.NewInt(7), *big.NewInt(7)))
	t.Run("what marshals itself by its pointer", asAgain(onlyInside{7}, onlyInside{7}))
	t.Run("a number in an any", asAgain[any](7, 7.0))
	t.Run("not UTF-8", asAgain("\xff", "\ufffd"))
	t.Run("what is not exported", asAgain(hidden{1, 2}, hidden{1, 0}))
	t.Run("a function that is left out", asAgain(struct {
		N int
		F func() `json:"-"`
	}{N: 1}, struct {
		N int
		F func() `json:"-"`
	}{N: 1}))
}

// notAs returns a test that no work for a T begins.
func notAs[T any](why string) func(t *testing.T) {
	return func(t *testing.T) {
		store := faulty(new(idempotency.Memory))
		_, err := doAs(t, store, never[T](t))
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, why)
		require.Zero(t, store.count(onReserve))
	}
}

func TestDoJSON_typesThatCannotBeStored(t *testing.T) {
	t.Run("a channel", notAs[chan int]("chan int"))
	t.Run("a function", notAs[func()]("func()"))
	t.Run("a complex number", notAs[complex128]("complex128"))
	t.Run("an interface with methods", notAs[io.Reader]("io.Reader"))
	t.Run("an error", notAs[struct{ Err error }]("error"))
	t.Run("in a slice of pointers", notAs[[]*chan int]("chan int"))
	t.Run("in an array", notAs[[1]func()]("func()"))
	t.Run("in a map", notAs[map[string]func()]("func()"))
	t.Run("in a field of a field", notAs[struct{ A struct{ B []func() } }]("func()"))
	t.Run("beside itself", notAs[*linked]("chan int"))
	t.Run("in what is embedded", notAs[struct{ embedded }]("func()"))
	t.Run("a map by numbers with fractions", notAs[map[float64]int]("float64"))
	t.Run("nothing that is exported", notAs[hiddenOnly]("no exported fields"))
	t.Run("a lock", notAs[struct{ Lock sync.Mutex }]("sync.Mutex"))
	t.Run("what marshals itself, and does not unmarshal", notAs[oneWay]("oneWay"))
	t.Run("the same as a text", notAs[oneWayText]("oneWayText"))
	t.Run("an interface of such methods", notAs[interface {
		json.Marshaler
		json.Unmarshaler
	}]("cannot be read from JSON"))
}

type (
	linked struct {
		Next *linked
		C    chan int
	}
	embedded   struct{ F func() }
	hiddenOnly struct{ id int } //nolint:unused // that is the point
	oneWay     chan int
	oneWayText chan int
)

func (oneWay) MarshalJSON() ([]byte, error)     { return []byte("1"), nil }
func (oneWayText) MarshalText() ([]byte, error) { return []byte("1"), nil }

// reported is what its UnmarshalJSON refuses.
type reported struct{ N int }

func (*reported) UnmarshalJSON([]byte) error { return errDown }

// notKept returns a test that work for a value is executed once, and that its result cannot be
// stored.
func notKept[T any](value T, why string) func(t *testing.T) {
	return func(t *testing.T) {
		store := new(idempotency.Memory)
		first, err := doAs(t, store, gives(value, nil))
		require.ErrorIs(t, err, idempotency.ErrUnreplayable)
		require.ErrorContains(t, err, why)
		require.True(t, reflect.DeepEqual(value, first) || reflect.TypeFor[T]() == reflect.TypeFor[float64](), "the value is whole")
		record := mustLoad(t, store, theID)
		assert.Equal(t, idempotency.CompletedUnreplayable, record.Status)
		assert.Empty(t, record.Result)

		again, err := doAs(t, store, never[T](t))
		require.ErrorIs(t, err, idempotency.ErrUnreplayable)
		require.Zero(t, again)
	}
}

// TestDoJSON_valuesThatCannotBeStored: the work has taken effect, and is not executed again.
func TestDoJSON_valuesThatCannotBeStored(t *testing.T) {
	loop := &receipt{}
	loop.Next = loop
	t.Run("not a number", notKept(math.NaN(), "unsupported value: NaN"))
	t.Run("a function in an any", notKept(map[string]any{"f": make(chan int)}, "unsupported type: chan int"))
	t.Run("a cycle", notKept(loop, "cycle"))
	t.Run("what cannot be read", notKept(reported{1}, errDown.Error()))
}

// TestDoJSON_changedType: if the stored JSON does not fit T any more, the result is an error,
// and not a partial value.
func TestDoJSON_changedType(t *testing.T) {
	type first struct {
		ID   string
		Note string
	}
	store := new(idempotency.Memory)
	require.NoError(t, errOf(doAs(t, store, gives(first{"1", "a"}, nil))))

	more, err := doAs(t, store, never[struct {
		ID, Note string
		New      []int
	}](t))
	require.NoError(t, err, "a field more")
	require.Equal(t, "1", more.ID)

	renamed, err := doAs(t, store, never[struct{ ID, Remark string }](t))
	require.ErrorIs(t, err, idempotency.ErrUnreplayable)
	require.ErrorContains(t, err, `the stored result is not a struct { ID string; Remark string }: json: unknown field "Note"`)
	require.Zero(t, renamed)

	other, err := doAs(t, store, never[struct {
		ID   int
		Note string
	}](t))
	require.ErrorIs(t, err, idempotency.ErrUnreplayable)
	require.ErrorContains(t, err, "cannot unmarshal string")
	require.Zero(t, other)
}

// TestDoJSON_ofAReconcilersResult: a result that is not JSON.
func TestDoJSON_ofAReconcilersResult(t *testing.T) {
	for _, body := range []string{"", "{", "1 2", "<html>"} {
		store := new(idempotency.Memory)
		_, err := idempotency.Do(t.Context(), store, theID.Scope, theID.Operation, theID.Key, "",
			func(context.Context) (idempotency.Result, error) { return idempotency.Result{Body: []byte(body)}, nil })
		require.NoError(t, err)
		require.ErrorIs(t, errOf(doAs(t, store, never[int](t))), idempotency.ErrUnreplayable, body)
	}
}

// TestDoJSON_errors: the errors are those of Do, without a value.
func TestDoJSON_errors(t *testing.T) {
	require.ErrorIs(t, errOf(doAs[int](t, new(idempotency.Memory), nil)), idempotency.ErrInvalid)

	store := new(idempotency.Memory)
	value, err := doAs(t, store, gives(7, idempotency.Permanent(errors.New("no such company"))))
	require.EqualError(t, err, "no such company")
	require.Zero(t, value)
	value, err = doAs(t, store, never[int](t))
	require.EqualError(t, err, "no such company")
	require.Zero(t, value)

	down := faulty(new(idempotency.Memory), rule{onComplete, 1, always, fault{before: idempotency.ErrLeaseLost}})
	value, err = doAs(t, down, gives(7, nil))
	require.ErrorIs(t, err, idempotency.ErrLeaseLost)
	require.Zero(t, value, "it counts for nothing")
}

// A queue delivers a message twice. It is imported once, with one result.
func ExampleDoJSON() {
	type invoice struct {
		Number string `json:"number"`
		Lines  int    `json:"lines"`
	}
	store := new(idempotency.Memory)
	for range 2 {
		result, err := idempotency.DoJSON(context.Background(), store, "comp1", "import-invoices", "message 7", "",
			func(context.Context) (invoice, error) {
				fmt.Println("importing")
				return invoice{Number: "001", Lines: 12}, nil
			})
		fmt.Println(result.Number, result.Lines, err)
	}
	// Output:
	// importing
	// 001 12 <nil>
	// 001 12 <nil>
}

// FuzzDoAsReplay: for any stored bytes, a duplicate gets a value that can be stored and
// read again, or an ErrUnreplayable.
func FuzzDoAsReplay(f *testing.F) {
	f.Fuzz(func(t *testing.T, stored []byte) {
		store := new(idempotency.Memory)
		_, err := idempotency.Do(t.Context(), store, theID.Scope, theID.Operation, theID.Key, "",
			func(context.Context) (idempotency.Result, error) { return idempotency.Result{Body: stored}, nil })
		require.NoError(t, err)
		value, err := doAs(t, store, never[receipt](t))
		if err != nil {
			require.ErrorIs(t, err, idempotency.ErrUnreplayable)
			require.Zero(t, value)
			return
		}
		asAgain(value, value)(t)
	})
}
