// SPDX-License-Identifier: Apache-2.0
#include "base/errors/coded_error.h"

#include "testing/check.h"

using namespace millpond;

TEST("a message ends with its code") {
  CHECK_EQ(codedText(codes::kTicketUsed, "the session has its client"),
           "the session has its client. Get a new ticket. [MILLPOND_E_TICKET_USED]");
  CHECK_EQ(codedText(codes::kTicketUsed, "it is late", "Start again."),
           "it is late. Start again. [MILLPOND_E_TICKET_USED]");
}

TEST("a code is found only whole and at the end") {
  CHECK(endsWithCode("no. Wait. [MILLPOND_E_TICKET_USED]", codes::kTicketUsed));
  CHECK(!endsWithCode("no. Wait. [MILLPOND_E_TICKET_USED] or not", codes::kTicketUsed));
  CHECK(!endsWithCode("no. Wait. [OTHER_MILLPOND_E_TICKET_USED]", codes::kTicketUsed));
  CHECK(!endsWithCode("no. Wait. [MILLPOND_E_TICKET_STALE]", codes::kTicketUsed));
  CHECK(!endsWithCode("", codes::kTicketUsed));
}
