// A Go program over the C interface: records, a query, a transaction with a conflict, goroutines.
package main

/*
#cgo pkg-config: bolide
#include <bolide.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

type bolideError struct {
	code    C.bolide_code
	message string
}

func (e *bolideError) Error() string { return e.message }

// check returns whether there is something, and the error of a call.
func check(code C.bolide_code, err *C.bolide_error) (bool, error) {
	if code <= C.BOLIDE_OK {
		return code == C.BOLIDE_OK, nil
	}
	defer C.bolide_error_free(err)
	return false, &bolideError{code, C.GoString(C.bolide_error_message(err))}
}

func must(code C.bolide_code, err *C.bolide_error) {
	if _, failure := check(code, err); failure != nil {
		fail(failure.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}

func expect(condition bool, message string) {
	if !condition {
		fail(message)
	}
}

// bytes returns the bytes of a string as two parameters.
func bytes(value string) (unsafe.Pointer, C.size_t) {
	if value == "" {
		return nil, 0
	}
	return unsafe.Pointer(&[]byte(value)[0]), C.size_t(len(value))
}

func text(value string) (*C.char, C.size_t) {
	data, size := bytes(value)
	return (*C.char)(data), size
}

func put(collection *C.bolide_collection, key, record string) error {
	var err *C.bolide_error
	k, kn := bytes(key)
	r, rn := bytes(record)
	_, failure := check(C.bolide_put(collection, k, kn, r, rn, &err), err)
	return failure
}

func get(collection *C.bolide_collection, key string) (string, bool) {
	var err *C.bolide_error
	var record C.bolide_bytes
	k, kn := bytes(key)
	found, failure := check(C.bolide_get(collection, k, kn, nil, &record, nil, &err), err)
	expect(failure == nil, "get")
	defer C.bolide_bytes_free(&record)
	return C.GoStringN(record.data, C.int(record.size)), found
}

func main() {
	var err *C.bolide_error
	var db *C.bolide_db
	expect(C.bolide_abi_version() == C.BOLIDE_ABI_VERSION, "the version of the interface")
	path, pathSize := text(os.Args[1])
	must(C.bolide_open(path, pathSize, nil, &db, &err), err)

	options := C.bolide_collection_options_new()
	index, indexSize := text("state")
	must(C.bolide_collection_options_add_index(options, index, indexSize, &err), err)
	var orders *C.bolide_collection
	name, nameSize := text("orders")
	must(C.bolide_collection_create(db, name, nameSize, options, &orders, &err), err)
	C.bolide_collection_options_free(options)

	var group sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for at := 0; at < 100; at++ {
				key := fmt.Sprintf("%d/%03d", worker, at)
				expect(put(orders, key, `{"state":"open"}`) == nil, "put")
				record, found := get(orders, key)
				expect(found && record == `{"state":"open"}`, "get")
			}
		}(worker)
	}
	group.Wait()
	_, found := get(orders, "nothing")
	expect(!found, "an absent record")

	var broken *bolideError
	failure := put(orders, "x", "{")
	expect(errors.As(failure, &broken) && broken.code == C.BOLIDE_INVALID_INPUT, "invalid JSON")

	var query *C.bolide_query
	filter, filterSize := text(`state = "open"`)
	must(C.bolide_query_new(filter, filterSize, &query, &err), err)
	must(C.bolide_query_set_limit(query, 300, &err), err)
	var answers *C.bolide_answers
	must(C.bolide_find(orders, query, nil, &answers, &err), err)
	C.bolide_query_free(query)
	count := 0
	var row C.bolide_row
	for {
		more, failure := check(C.bolide_answers_next(answers, &row, &err), err)
		expect(failure == nil, "answers")
		if !more {
			break
		}
		expect(C.GoStringN(row.record.data, C.int(row.record.size)) == `{"state":"open"}`, "a record")
		count++
	}
	C.bolide_answers_free(answers)
	expect(count == 300, fmt.Sprint("answers: ", count))

	var tx *C.bolide_transaction
	must(C.bolide_begin(db, C.BOLIDE_SERIALIZABLE, C.BOLIDE_SYNC_DEFAULT, 0, &tx, &err), err)
	var record C.bolide_bytes
	key, keySize := bytes("0/000")
	must(C.bolide_transaction_get(tx, orders, key, keySize, false, &record, &err), err)
	C.bolide_bytes_free(&record)
	other, otherSize := bytes("{}")
	must(C.bolide_transaction_put(tx, orders, key, keySize, other, otherSize, &err), err)
	expect(put(orders, "0/000", `{"state":"done"}`) == nil, "put")
	_, failure = check(C.bolide_commit(tx, nil, &err), err)
	expect(errors.As(failure, &broken) && broken.code == C.BOLIDE_CONFLICT, "a conflict")
	C.bolide_transaction_free(tx)

	C.bolide_collection_free(orders)
	must(C.bolide_close(db, &err), err)
}
