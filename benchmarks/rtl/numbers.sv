// FP16 and E4M3 numbers as integers, in units of the smallest FP16 number, 2^-24.
// FAULT plants a mistake: 1 truncates, 2 rounds ties up, 3 loses overflow.
`ifndef FAULT
`define FAULT 0
`endif

package numbers;

function automatic logic signed [63:0] units_of_fp16(input logic [15:0] x);
  logic [63:0] magnitude;
  magnitude = x[14:10] == 0 ? 64'(x[9:0]) : 64'({1'b1, x[9:0]}) << (x[14:10] - 1);
  units_of_fp16 = x[15] ? -$signed(magnitude) : $signed(magnitude);
endfunction

function automatic logic signed [63:0] integer_of_e4m3(input logic [7:0] x);  // in units of 2^-9
  logic [63:0] magnitude;
  magnitude = x[6:3] == 0 ? 64'(x[2:0]) : 64'({1'b1, x[2:0]}) << (x[6:3] - 1);
  integer_of_e4m3 = x[7] ? -$signed(magnitude) : $signed(magnitude);
endfunction

function automatic logic [15:0] fp16_of_units(input logic signed [63:0] sum);  // to nearest even
  logic [63:0] magnitude, significand, rest, half, code;
  int shift;
  magnitude = sum < 0 ? -sum : sum;
  shift = 0;
  for (int i = 11; i < 64; i++) if (magnitude[i]) shift = i - 10;
  significand = magnitude >> shift;
  rest = magnitude - (significand << shift);
  half = (64'd1 << shift) >> 1;
  code = significand < 1024 ? significand : (64'(shift) << 10) + significand;
  if (shift != 0 && `FAULT != 1) code += 64'(rest > half || (rest == half && (`FAULT == 2 || significand[0])));
  if (code > 64'h7C00 && `FAULT != 3) code = 64'h7C00;
  fp16_of_units = {sum < 0, code[14:0]};
endfunction

endpackage
